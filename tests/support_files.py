"""Files that nobody but their owner should read."""

from __future__ import annotations

from pathlib import Path

SECRETS = [
    ".ssh/config",
    ".ssh/keys/work",
    ".gnupg/trustdb.gpg",
    ".aws/credentials",
    ".AWS/Config",
    ".azure/token.json",
    ".kube/config",
    ".docker/config.json",
    ".config/gcloud/access.db",
    ".config/gh/hosts.yml",
    ".env",
    ".env.local",
    ".env.production",
    "prod.env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    ".bash_history",
    "credentials",
    "credentials.json",
    "client_secret_42.json",
    "secrets.yaml",
    "id_rsa",
    "backup/id_ed25519",
    "server.p12",
    "store.jks",
    "vault.kdbx",
    "putty.ppk",
    "login.keychain-db",
    "wallet.dat",
    "Library/Keychains/login",
    ".local/share/keyrings/a",
    ".mozilla/firefox/x/places.sqlite",
    ".config/google-chrome/x",
    "Library/Application Support/Google/Chrome/Default/Cookies",
    "AppData/Local/Google/Chrome/User Data/x",
    "AppData/Roaming/Mozilla/Firefox/Profiles/x/prefs.js",
    "x/logins.json",
    "etc/shadow",
    "run/secrets/token",
]
# How files begin that are private keys, whatever their name.
KEYS = [
    b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
    b"\n-----BEGIN RSA PRIVATE KEY-----\n",
    b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n",
    b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
    b"PuTTY-User-Key-File-3: ssh-ed25519\n",
]


def make(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
