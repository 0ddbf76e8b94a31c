"""Packaging of the server: `server.json` for the MCP registry, `manifest.json` for MCPB bundles."""
