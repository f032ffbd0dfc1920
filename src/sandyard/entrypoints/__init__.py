"""Entry points of Sandyard: the HTTP application, the job schedule and the command line."""
