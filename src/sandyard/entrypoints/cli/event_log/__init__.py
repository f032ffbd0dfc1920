"""event_log"""
