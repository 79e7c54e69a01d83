"""The HTTP contract as OpenAPI: operations, parameters, bodies and examples."""
