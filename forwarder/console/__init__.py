"""The operators' console: watching and repairing the deployment in a browser. Uses operations and ports, never a stage or a driver.

`app` assembles it; `guard` authenticates and authorizes; `pages` has a module for each page.
"""
