"""terminals"""
