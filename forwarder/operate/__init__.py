"""Operators' work: a module for each noun, with its operations and its commands. It uses the kernel, which never imports it."""
