"""Which URLs and addresses may be fetched (protection against SSRF); opens no connection.

URLs are parsed strictly. An address is public only if it is in none of the networks listed below.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import quote

from mcpvectordb.errors import Refused

MAX_URL = 8_000

Network = IPv4Network | IPv6Network


def _table(networks: dict[str, str]) -> dict[Network, str]:
    return {
        ip_network(each): reason for reason, listed in networks.items() for each in listed.split()
    }


# Allowed with `allow_private_urls`. An IPv6 address that embeds an IPv4 one is then checked by the
# IPv4 address.
PRIVATE = _table(
    {
        "this machine": "127.0.0.0/8 ::1/128",
        "in a private network": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10",
        "in a carrier's internal network": "100.64.0.0/10",
        "link-local": "169.254.0.0/16 fe80::/10",
        "an embedded IPv4 address": "::ffff:0:0/96 64:ff9b::/96 2002::/16",
    }
)
# Never allowed.
NEVER = _table(
    {
        "a cloud's metadata service": "169.254.169.254 169.254.170.2 169.254.170.23 "
        "100.100.100.200 168.63.129.16 192.0.0.192 fd00:ec2::254 fd00:ec2::23 fd20:ce::254",
        "not an address of any host": "0.0.0.0/8 ::/128",
        "for documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
        "for benchmarks": "198.18.0.0/15",
        "multicast": "224.0.0.0/4 ff00::/8",
        "reserved": "192.0.0.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.175.48.0/24 "
        "240.0.0.0/4 2001::/23 2620:4f:8000::/48",
    }
)
# IPv6 is public only in this network, so that tunnels and unassigned ranges need no entry above.
PUBLIC_IPV6 = ip_network("2000::/3")
NAT64 = ip_network("64:ff9b::/96")
PRIVATE_NAMES = re.compile(
    r"(?:.*\.)?(?:localhost|local|localdomain|internal|intranet|lan|home|corp|home\.arpa)"
)


class ParsedUrl(NamedTuple):
    """The parts of a URL: `host` is an ASCII name or an address, `target` the path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """Host and port as a URL writes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str) -> ParsedUrl:
    """Return the parts of a URL; Refused if two programs could parse it differently."""
    if len(url) > MAX_URL:
        raise Refused(f"{url[:60]}…: longer than {MAX_URL} characters")
    if not url.isprintable() or " " in url or "\\" in url:
        raise Refused(
            f"{url!r}: spaces, backslashes and invisible characters must be percent-encoded"
        )
    parts = re.fullmatch(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", url, re.IGNORECASE)
    if not parts:
        raise Refused(f"{url}: only http:// and https:// URLs can be fetched")
    scheme, authority, path, query = parts[1].lower(), parts[2], parts[3], parts[4] or ""
    if "@" in authority or "%" in authority:
        raise Refused(
            f"{url}: no user name, password, zone or percent-encoding is allowed in the host part"
        )
    host_port = re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]+)(?::([0-9]{0,5}))?", authority)
    if not host_port:
        raise Refused(f"{url}: {authority!r} is not a host and port")
    port = int(host_port[2] or (443 if scheme == "https" else 80))
    if not 1 <= port <= 65_535:
        raise Refused(f"{url}: there is no port {port}")
    # A path without a slash can only be empty here. Non-ASCII characters are sent as UTF-8 bytes.
    return ParsedUrl(
        scheme,
        _host(host_port[1]),
        port,
        quote((path or "/") + query, safe="!\"$%&'()*+,-./:;=?@[]_~|{}^`<>"),
    )


def _host(text: str) -> str:
    if text.startswith("["):
        try:
            return str(IPv6Address(text[1:-1]))
        except ValueError:
            raise Refused(f"{text} is not an IPv6 address") from None
    name = _ascii(text).lower().removesuffix(".")
    if len(name) > 253 or not re.fullmatch(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", name):
        raise Refused(f"{text!r} is not a host name")
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", name.rpartition(".")[2]):
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise Refused(
                f"{text!r} is an obfuscated IPv4 address; write it as four decimal numbers"
            ) from None
    return name


def _ascii(name: str) -> str:
    if name.isascii():
        return name
    import idna

    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise Refused(f"{name!r} is not a host name: {error}") from None


def blocked(address: str, *, allow_private: bool = False) -> str:
    """Return why this address must not be fetched from, or "" if it may."""
    parsed = ip_address(address.partition("%")[0])
    for network, reason in NEVER.items():
        if parsed in network:
            return reason
    for network, reason in PRIVATE.items():
        if parsed in network:
            if not allow_private:
                return reason
            inner = _embedded_ipv4(parsed)
            return blocked(inner, allow_private=True) if inner else ""
    if parsed.version == 6 and parsed not in PUBLIC_IPV6:
        return "not a public address"
    return ""


def _embedded_ipv4(address: IPv4Address | IPv6Address) -> str:
    """The IPv4 address inside an IPv6 address (mapped, NAT64 or 6to4), or ""."""
    if isinstance(address, IPv4Address):
        return ""
    if address in NAT64:
        return str(IPv4Address(int(address) & 0xFFFFFFFF))
    inner = address.ipv4_mapped or address.sixtofour
    return str(inner) if inner else ""
