"""How the server is offered: `server.json` for the MCP registry, `manifest.json` for one-click
bundles (MCPB).
"""
