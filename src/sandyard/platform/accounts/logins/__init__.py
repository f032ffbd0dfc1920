"""logins"""
