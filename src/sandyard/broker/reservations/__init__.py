"""reservations"""
