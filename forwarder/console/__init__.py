"""The operators' console: watching and repairing the deployment in a browser. Uses operations and ports, never a stage or a driver.

`app` assembles it; `guard` authenticates and authorizes; the other modules are its pages."""
