"""Requests, responses, problems and the server, for every stage that serves HTTP. Independent of reservations."""
