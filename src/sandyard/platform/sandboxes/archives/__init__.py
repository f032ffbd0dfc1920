"""archives"""
