"""Files that nobody but their owner should read."""

from __future__ import annotations

import base64
from pathlib import Path

SECRETS = """
    .ssh/config .ssh/keys/work .gnupg/trustdb.gpg .aws/credentials .AWS/Config .azure/token.json
    .kube/config .docker/config.json .config/gcloud/access.db .config/gh/hosts.yml .env .env.local
    .env.production prod.env .envrc .netrc _netrc .pgpass .git-credentials .npmrc .pypirc
    .htpasswd .bash_history credentials credentials.json client_secret_42.json secrets.yaml id_rsa
    backup/id_ed25519 server.p12 store.jks vault.kdbx putty.ppk login.keychain-db wallet.dat
    Library/Keychains/login .local/share/keyrings/a .mozilla/firefox/x/places.sqlite
    .config/google-chrome/x AppData/Roaming/Mozilla/Firefox/Profiles/x/prefs.js x/logins.json
    etc/shadow run/secrets/token .claude.json .claude.json.backup .claude/settings.local.json
    .config/Claude/claude_desktop_config.json .codex/auth.json .cursor/mcp.json
    .config/Code/User/mcp.json .codeium/windsurf/mcp_config.json .config/zed/settings.json
    .config/sops/age/keys.txt .cache/huggingface/token service-account-prod.json
    infra/terraform.tfstate infra/Prod.TFState infra/prod.auto.tfvars infra/vault_pass.txt
    kubernetes/secret.yaml rails/config/master.key backup/fish_history
    windows/ConsoleHost_history.txt firebase-adminsdk-x1.json old.kdb Cookies.binarycookies
""".split()
SECRETS += [
    "Library/Application Support/Google/Chrome/Default/Cookies",
    "AppData/Local/Google/Chrome/User Data/x",
]
# How files begin that are private keys, whatever their name.
KEYS = [
    b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
    b"\n-----BEGIN RSA PRIVATE KEY-----\n",
    b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n",
    b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
    b"PuTTY-User-Key-File-3: ssh-ed25519\n",
]
# Files that are mostly tokens, whatever their name. The tokens are put together here, so that no
# scanner takes this file for one of them.
TOKENS = [
    b"# created: 2026-01-01\n# public key: age1xyz\n" + b"AGE-SECRET-" + b"KEY-1" + b"Q" * 58,
    b"ghp" + b"_" + b"a1" * 18 + b"\n",
    b"token: github" + b"_pat_" + b"a1" * 30,
    b'{"ANTHROPIC_API_KEY": "' + b"sk-" + b"ant-" + b"a1" * 20 + b'"}',
    b"export SLACK=" + b"xoxb" + b"-1234567890-abcdefghij",
    b"[default]\naws_access_key_id = " + b"AKIA" + b"Q1" * 8,
    b'{"type": "service_account", "private_key": "-----BEGIN '
    + b"PRIVATE KEY-----\\n"
    + b"a1" * 200,
    b"Access key ID,Secret access key\n" + b"ASIA" + b"Q1" * 8 + b"," + b"a1/b" * 10,
    b"xapp" + b"-1-A0B1-" + b"a1" * 20,
    b"https://hooks.slack" + b".com/services/T0A1/B0A1/" + b"a1" * 12,
    b"ya29" + b"." + b"a1" * 40,
    b"SG" + b"." + b"a1" * 11 + b"." + b"a1" * 20,
    b"ey" + b"Ja1a1a1a1a1." + b"ey" + b"Ja1a1a1a1a1." + b"a1" * 20,
    b"hvs" + b"." + b"a1" * 40,
    b"12345678" + b":AA" + b"a1" * 16 + b"a",
    b"DefaultEndpointsProtocol=https;Account" + b"Key=" + b"a1/+" * 20 + b"==",
    b"[Interface]\nPrivate" + b"Key = " + b"a1" * 21 + b"a=\n",
    b"users:\n- user:\n    client-key-data: "
    + base64.b64encode(b"-----BEGIN RSA " + b"PRIVATE KEY-----\n" + b"a1" * 200),
    ("\ufeff" + "gh" + "p_" + "a1" * 18).encode("utf-16-le"),
]


def make(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
