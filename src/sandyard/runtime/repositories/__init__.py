"""repositories"""
