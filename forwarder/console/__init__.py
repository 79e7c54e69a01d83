"""The operators' page: what happens, and repairing it, in a browser. Beside the stages: uses operations and ports, never a driver.

`app` puts the rooms together; `guard` says who may do what from where; `pages` has a module for each page.
"""
