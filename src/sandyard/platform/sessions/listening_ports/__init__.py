"""listening_ports"""
