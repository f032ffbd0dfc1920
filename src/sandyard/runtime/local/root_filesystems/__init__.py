"""root_filesystems"""
