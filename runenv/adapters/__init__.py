"""Adapters: the glue between our tools, envs and stores and one framework each.

Each module or folder is the only one that imports its framework, which is an extra of the package; none imports
another. Everything else of runenv may be used here but the command line.
"""
