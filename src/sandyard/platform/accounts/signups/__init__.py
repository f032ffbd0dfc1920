"""signups"""
