"""jail"""
