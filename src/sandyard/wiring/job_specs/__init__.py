"""job_specs"""
