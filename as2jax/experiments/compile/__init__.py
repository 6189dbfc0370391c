"""Compiling a config's steps for devices that are not there."""
