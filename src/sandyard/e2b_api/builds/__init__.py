"""Builds of templates: a recipe, its steps run in a sandbox, and the template that they make."""
