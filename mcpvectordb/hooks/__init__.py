"""Hooks of agent hosts: a briefing when a session starts, and its turns kept as a conversation."""
