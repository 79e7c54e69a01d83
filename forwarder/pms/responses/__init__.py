"""Responses of PMSs, the same for every kind: reads them, classifies refusals, compares them with the request, and prepares them
for storage. Pure.
"""
