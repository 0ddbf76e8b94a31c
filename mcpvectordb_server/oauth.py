"""The server as its own OAuth authorization server, for the one person whose file it serves.

The SDK brings the endpoints and their checks; what clients, consents and tokens there are is known
to `Access`. Clients are public ones: none has a secret, PKCE (S256) takes its place. They are known
by a document at an https address, or register. Every consent needs the passphrase, so that there is
no login, no cookie, and nothing that another page could make the browser do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from anyio import CapacityLimiter, to_thread
from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.metadata import MetadataHandler, ProtectedResourceMetadataHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenErrorResponse, TokenHandler
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.middleware.client_auth import ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import (
    build_metadata,
    build_resource_metadata_url,
)
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.auth import (
    InvalidRedirectUriError,
    InvalidScopeError,
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyHttpUrl, AnyUrl, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcpvectordb import Access, InvalidInput, MCPVectorDBError, NotFound, Token
from mcpvectordb_server import consent
from mcpvectordb_server.connections import is_loopback
from mcpvectordb_server.stdio import NOTIFICATIONS
from mcpvectordb_server.surface import ExposedTool, Tool

SCOPES = ("read", "write", "ingest")
PUBLIC = "none"  # how clients authenticate
PATH = "/mcp"  # of what they reach: nobody comes in by SSE, whose stream outlives a revocation
MOST_BYTES = 16_384  # of a request to any endpoint here
# Through these no more is seen of the file than what its instructions say. All else, but for calls
# of tools, needs `read`.
_FREE = {"initialize", "server/discover", "ping", "tools/list", "logging/setLevel"}
# What browsers run, show or open themselves; any other scheme belongs to a program.
_NO_PROGRAM = set(
    "about blob chrome data file filesystem ftp javascript vbscript view-source ws wss".split()
)
_KEPT = ("client_name", "redirect_uris", "grant_types")
# For how long, and of how many clients, what their documents say is kept in memory.
_REMEMBERED, _MOST_REMEMBERED = 300, 100


def scope_of(tool: Tool) -> str:
    """The scope that a call of a tool needs."""
    if tool.hints.read_only:
        return "read"
    takes_sources = tool.hints.open_world or tool.arguments.grant is not None
    return "ingest" if takes_sources else "write"


class PublicClient(OAuthClientInformationFull):
    """A client, with redirect URIs that are checked, and no secret."""

    token_endpoint_auth_method: str | None = PUBLIC

    @classmethod
    def checked(cls, id: str, about: Mapping[str, Any]) -> PublicClient:
        """From what a client says of itself; raises InvalidInput."""
        try:
            made = cls.model_validate(
                {"client_id": id, **{each: about.get(each) for each in _KEPT}}
            )
        except ValidationError as error:
            raise InvalidInput(f"its metadata is not valid: {error.errors()[0]['msg']}") from None
        if not made.redirect_uris or len(made.redirect_uris) > 20:
            raise InvalidInput("a client needs 1 to 20 redirect_uris")
        for uri in made.redirect_uris:
            host = (uri.host or "").strip("[]")
            if (
                uri.scheme in _NO_PROGRAM
                or (uri.scheme == "http" and not is_loopback(host))
                or uri.fragment is not None
                or uri.username
                or uri.password
                or len(str(uri)) > 2_000
            ):
                raise InvalidInput(
                    f"the redirect URI {str(uri)[:200]!r} must be https, http on this machine, or "
                    "the scheme of a program, without a fragment or user"
                )
        return made

    @property
    def about(self) -> dict[str, Any]:
        """What is kept of it."""
        return self.model_dump(mode="json", include=set(_KEPT), exclude_none=True)

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """The URI to answer to: one of its own, on this machine with any port (RFC 8252)."""
        if redirect_uri is None:
            return super().validate_redirect_uri(None)
        if _without_port(redirect_uri) not in map(_without_port, self.redirect_uris or ()):
            raise InvalidRedirectUriError("this redirect URI is not one of the client's")
        return redirect_uri

    def validate_scope(self, requested_scope: str | None) -> list[str] | None:
        """The known ones among those requested: the person decides about them."""
        if not requested_scope:
            return None
        known = [each for each in SCOPES if each in requested_scope.split()]
        if not known:
            raise InvalidScopeError(f"there are the scopes {', '.join(SCOPES)}")
        return known


def _without_port(uri: AnyUrl) -> str:
    whole = str(AnyUrl(str(uri)))
    parts = urlsplit(whole)
    if parts.scheme != "http" or "#" in whole or "@" in parts.netloc:
        return whole
    return parts._replace(netloc=parts.hostname or "").geturl()  # of this machine: others have TLS


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """What the SDK's endpoints ask, for tokens of one resource: the public URL of the server."""

    def __init__(self, access: Access, resource: str) -> None:
        self.access, self.resource = access, resource

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """A client that has registered or was let in."""
        about = self.access.client(client_id)
        return None if about is None else PublicClient.checked(client_id, about)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Keep a client, which is told that it has no secret."""
        try:
            made = PublicClient.checked(client_info.client_id, client_info.model_dump(mode="json"))
        except InvalidInput as error:
            raise RegistrationError("invalid_redirect_uri", str(error)) from None
        client_info.token_endpoint_auth_method = PUBLIC
        client_info.client_secret = client_info.client_secret_expires_at = None
        self.access.register(client_info.client_id, made.about)

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        """Not here, but in `_Asked`: a person has to answer."""
        raise NotImplementedError

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        """A code of this client."""
        found = self._unused(authorization_code, "code", client)
        return found and AuthorizationCode(
            code=authorization_code,
            scopes=found.scopes,
            expires_at=found.expires,
            client_id=found.client,
            resource=found.resource,
            **found.details,
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """The first tokens."""
        return self._exchange(authorization_code.code, "code", authorization_code.scopes)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        """A refresh token of this client."""
        found = self._unused(refresh_token, "refresh", client)
        return found and RefreshToken(
            token=refresh_token,
            client_id=found.client,
            scopes=found.scopes,
            expires_at=found.expires,
            resource=found.resource,
        )

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        """New tokens for the old one."""
        return self._exchange(refresh_token.token, "refresh", scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        """A token that lets in here and now."""
        return self.access_token(token)

    def access_token(self, token: str) -> AccessToken | None:
        """The same, for the gate."""
        found = self.access.token(token, "access")
        if found is None or found.resource != self.resource or found.expires <= time.time():
            return None
        return AccessToken(
            token=token,
            client_id=found.client,
            scopes=found.scopes,
            expires_at=found.expires,
            resource=found.resource,
        )

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """End the consent that a token is of."""
        self.revoke(token.token, token.client_id)

    def revoke(self, token: str, client: str) -> None:
        """End the consent that a client's token is of; nothing happens if there is none."""
        for kind in ("access", "refresh"):
            found = self.access.token(token, kind)
            if found is not None and found.client == client:
                self._end(found.consent)

    def _unused(self, token: str, kind: str, client: OAuthClientInformationFull) -> Token | None:
        """A code or token for this resource; all that was given for one that comes again ends."""
        found = self.access.token(token, kind)
        if found is None or (found.client, found.resource) != (client.client_id, self.resource):
            return None
        if found.used:
            self._end(found.consent)
            return None
        return found

    def _end(self, consent: int) -> None:
        with suppress(NotFound):  # another process was first
            self.access.revoke(consent)

    def _exchange(self, token: str, kind: str, scopes: list[str]) -> OAuthToken:
        made = self.access.exchange(token, kind, scopes)
        if made is None:
            raise TokenError("invalid_grant", "it has expired, was used before, or was revoked")
        access, refresh = made
        return OAuthToken(
            access_token=access,
            refresh_token=refresh,
            expires_in=self.access.ACCESS_SECONDS,
            scope=" ".join(scopes),
        )


class _Asked(Provider):
    """The provider for one request at /authorize: it takes down what is asked, and by whom."""

    def __init__(self, server: AuthorizationServer) -> None:
        super().__init__(server._provider.access, server._provider.resource)
        self._server = server
        self.client: PublicClient | None = None
        self.params: AuthorizationParams | None = None
        self.reason = ""

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """A client that has registered, or what the document at its address says now."""
        try:
            if client_id.startswith("https://"):
                return await self._server.described(client_id)
            return await super().get_client(client_id)
        except MCPVectorDBError as error:
            self.reason = f"The client is not known: {error}"
            return None

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        """Take it down."""
        self.client = PublicClient.checked(client.client_id, client.model_dump(mode="json"))
        self.params = params
        return ""


@dataclass
class _TokenEndpoint(TokenHandler):
    """Gives tokens for this resource alone (RFC 8707), which the SDK does not look at."""

    resource: str = ""

    async def handle(self, request: Request) -> Response:
        """Answer a request for tokens."""
        if all(_is(each, self.resource) for each in (await request.form()).getlist("resource")):
            answer: Response = await super().handle(request)
        else:
            told = f"tokens from here are for {self.resource}"
            answer = self.response(
                TokenErrorResponse(error="invalid_target", error_description=told)
            )
        return answer


def _is(given: object, resource: str) -> bool:
    return str(given).removesuffix("/") == resource


class AuthorizationServer:
    """The endpoints of OAuth at a public URL, who has a token, and what a token may do.

    A scope is offered if a tool needs it.
    """

    def __init__(self, access: Access, public_url: str, tools: Mapping[str, ExposedTool]) -> None:
        self.url, resource = public_url, public_url + PATH
        self._provider = Provider(access, resource)
        self._needs = {name: scope_of(each.tool) for name, each in tools.items()}
        self._scopes = [each for each in SCOPES if each in {"read", *self._needs.values()}]
        self._described: dict[str, tuple[float, PublicClient]] = {}
        self._fetching, self._checking = CapacityLimiter(4), CapacityLimiter(1)
        self._metadata_url = str(build_resource_metadata_url(AnyHttpUrl(resource)))
        registration = ClientRegistrationOptions(enabled=True)
        metadata = build_metadata(
            AnyHttpUrl(public_url), None, registration, RevocationOptions(enabled=True)
        )
        # As text, because a URL of Pydantic would end with a slash, and issuers are compared so.
        described = metadata.model_dump(mode="json", exclude_none=True) | {
            "issuer": public_url,
            "scopes_supported": self._scopes,
            "token_endpoint_auth_methods_supported": [PUBLIC],
            "revocation_endpoint_auth_methods_supported": [PUBLIC],
            "client_id_metadata_document_supported": access.config.allow_urls,
            "authorization_response_iss_parameter_supported": True,
        }
        protected = {
            "resource": resource,
            "authorization_servers": [public_url],
            "scopes_supported": self._scopes,
            "resource_name": "mcpvectordb",
        }
        clients = ClientAuthenticator(self._provider)
        routes = [
            Route(
                urlsplit(self._metadata_url).path,
                ProtectedResourceMetadataHandler(
                    ProtectedResourceMetadata.model_validate(protected)
                ).handle,
            ),
            Route(
                "/.well-known/oauth-authorization-server",
                MetadataHandler(OAuthMetadata.model_validate(described)).handle,
            ),
            Route("/authorize", self._authorize, methods=["GET", "POST"]),
            Route(
                "/token",
                _TokenEndpoint(self._provider, clients, resource=resource).handle,
                methods=["POST"],
            ),
            Route("/revoke", self._revoke, methods=["POST"]),
            Route(
                "/register",
                RegistrationHandler(self._provider, registration).handle,
                methods=["POST"],
            ),
        ]
        self._paths = {route.path for route in routes}
        self._endpoints = RequestBodyLimitMiddleware(Starlette(routes=routes), MOST_BYTES)

    # --- for the gate

    def is_open(self, path: str) -> bool:
        """Whether a path is one of those here, which need no token."""
        return path in self._paths

    def beside(self, app: ASGIApp) -> ASGIApp:
        """The application with the endpoints."""

        async def both(scope: Scope, receive: Receive, send: Send) -> None:
            here = scope["type"] == "http" and scope["path"] in self._paths
            await (self._endpoints if here else app)(scope, receive, send)

        return both

    def user(self, token: str) -> AuthenticatedUser | None:
        """Whom a token lets in; the SDK keeps sessions of different ones apart."""
        found = self._provider.access_token(token)
        return None if found is None else AuthenticatedUser(found)

    def missing(self, content: Any, scopes: list[str]) -> list[str]:
        """The scopes that a message needs, with those that are there; none if it may pass.

        A tool that changes something needs `read`, too: it says what was there before.
        """
        method, params = str(content.get("method", "")), content.get("params")
        if not method or method in _FREE or method.startswith(NOTIFICATIONS):
            return []
        name = params.get("name") if isinstance(params, dict) else None
        needed = ["read"]
        if method == "tools/call":
            needed.append(self._needs.get(str(name), "read"))
        lacking = [each for each in dict.fromkeys(needed) if each not in scopes]
        return [*scopes, *lacking] if lacking else []

    def refusal(self, scopes: list[str]) -> Response:
        """The answer to a message that needs these scopes."""
        told = f"this needs the scope {scopes[-1]}: let the person allow it"
        return JSONResponse(
            {"error": "insufficient_scope", "error_description": told},
            403,
            self.challenge("insufficient_scope", scopes),
        )

    def challenge(self, error: str = "", scopes: list[str] | None = None) -> dict[str, str]:
        """The header that says where tokens are given, and for what."""
        told = {
            "error": error,
            "scope": " ".join(scopes or self._scopes),
            "resource_metadata": self._metadata_url,
        }
        parts = ", ".join(f'{name}="{value}"' for name, value in told.items() if value)
        return {"WWW-Authenticate": f"Bearer {parts}"}

    async def _revoke(self, request: Request) -> Response:
        """Revoke a token (RFC 7009); the SDK's endpoint demands a secret, which no client has."""
        form = await request.form()
        self._provider.revoke(str(form.get("token", "")), str(form.get("client_id", "")))
        return Response(headers={"Cache-Control": "no-store"})

    # --- clients that describe themselves

    async def described(self, url: str) -> PublicClient:
        """The client whose id is a URL, by what is there now, or was some minutes ago."""
        now = time.monotonic()
        if url in self._described and self._described[url][0] > now:
            return self._described[url][1]
        access = self._provider.access
        about = await to_thread.run_sync(access.client_document, url, limiter=self._fetching)
        made = PublicClient.checked(url, about)
        self._described[url] = now + _REMEMBERED, made
        while len(self._described) > _MOST_REMEMBERED:
            del self._described[next(iter(self._described))]
        return made

    # --- the person

    async def _authorize(self, request: Request) -> Response:
        """Ask the person whether a client may come in, and send the answer to the client."""
        if request.method != "GET" and request.headers.get("origin") != self.url:
            return consent.failed("This form was sent by another page. Nothing was allowed.", 403)
        asked = _Asked(self)
        response = await AuthorizationHandler(asked).handle(request)
        client, params = asked.client, asked.params
        if client is None or params is None:
            return consent.failed(asked.reason or _error_of(response), 400)
        if params.resource is not None and not _is(params.resource, self._provider.resource):
            return consent.failed(f"Tokens from here are for {self._provider.resource}.", 400)
        offered = [each for each in self._scopes if each in (params.scopes or self._scopes)]
        if not offered:
            return consent.failed("There is no tool here for what the program asks for.", 400)
        asking = consent.ConsentPage(self.url, client, params, offered)
        if request.method == "GET":
            return asking.page()
        form = await request.form()
        if form.get("answer") != "allow":
            return self._answer(params, error="access_denied")
        scopes = [each for each in offered if form.get(each)]
        access = self._provider.access
        try:
            if not scopes:
                raise InvalidInput("choose what is allowed, or deny it")
            given = str(form.get("passphrase", ""))
            await to_thread.run_sync(access.check_passphrase, given, limiter=self._checking)
        except InvalidInput as error:
            return asking.page(str(error), scopes)
        details = params.model_dump(
            mode="json",
            include={"code_challenge", "redirect_uri", "redirect_uri_provided_explicitly"},
        )
        code = access.consent(
            client.client_id, client.about, scopes, self._provider.resource, details
        )
        return self._answer(params, code=code)

    def _answer(self, params: AuthorizationParams, **told: str) -> Response:
        """To the client, by way of the browser."""
        place = construct_redirect_uri(
            str(params.redirect_uri), **told, state=params.state, iss=self.url
        )
        return RedirectResponse(place, 303, consent.headers())


def _error_of(response: Response) -> str:
    """What the SDK says to a request that is not valid.

    It would tell it to the client, by redirecting the browser. Anybody can register, so links to
    this server would lead anywhere, without anything that the person has to answer.
    """
    place = urlsplit(response.headers.get("location", ""))
    told = parse_qs(place.query) if place.query else json.loads(bytes(response.body))
    said = told.get("error_description", "")
    return f"The program's request is not valid: {said if isinstance(said, str) else said[-1]}"
