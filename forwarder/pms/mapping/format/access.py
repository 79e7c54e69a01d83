"""How a mapping says that the PMS lets an account in: a credential as it is, tokens by OAuth 2.0, or a signature on every
request."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from forwarder.pms.mapping.format.parts import Condition, HeaderName, Scalar, Table, Text, nonsense

SignedPart = Literal["method", "path", "query", "timestamp", "nonce", "bodySha256", "key"]
"""What a signature may be over. `path` is with that of the base URL; `query` has its parameters in the order of their names."""


def _token_url(url: str) -> str:
    if not url.startswith(("{base}/", "{host}/", "https://")):
        raise nonsense(
            "an address below the base URL as {base}/…, below its host as {host}/…, or one that begins with https://"
        )
    return url


class OAuth(Table):
    """Access tokens of OAuth 2.0. They are kept with the account, and shared by all workers."""

    grant: Literal["client_credentials", "refresh_token", "header"] = "client_credentials"
    """`client_credentials`: the credential is `CLIENT_ID:SECRET`. `refresh_token`: it is a JSON object with clientId,
    clientSecret and
    refreshToken, and each answer brings the next refresh token. Any other credential is an access token, and sent as it is.
    `header`: the credential is a refresh token that never changes, shown in a header of a GET."""
    header: HeaderName | None = None
    """The header for the grant header."""
    token_url: Annotated[str, AfterValidator(_token_url)]
    """Where tokens are asked for."""
    encoding: Literal["form", "json"] = "form"
    """How the request for a token is written."""
    scope: Text | None = None
    """The scope that is asked for."""
    ended: Condition = Condition(status=frozenset({401}))
    """How the PMS says that it takes a token no more. With `when` it goes before all `errors`; by a status alone, an answer
    that one of the `errors` reads the body of is none of these."""
    tokens_per_day: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How many tokens a day the PMS gives out: one that was granted too short a while ago is not replaced."""

    usable_after_seconds: Annotated[float, Field(ge=0, le=10)] = 0.0
    """How long after it was given a token is first accepted."""

    @property
    def min_seconds(self) -> float:
        """How long a token is used at the least."""
        return 0.0 if self.tokens_per_day is None else _DAY_SECONDS / self.tokens_per_day

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if not self.ended.status:
            raise nonsense("ended: `status` says by which statuses")
        if (self.header is None) == (self.grant == "header"):
            raise nonsense("`header` is for the grant header, which needs it")
        return self


_DAY_SECONDS: Final = 86_400


class Signature(Table):
    """HMAC-SHA256 over what a request says. The credential is `KEY:SECRET`."""

    headers: Mapping[HeaderName, Literal["key", "timestamp", "nonce", "signature"]]
    """What each header carries."""
    text: Annotated[tuple[SignedPart, ...], Field(min_length=1)]
    """What is signed, in this order."""
    joined_by: str = "\n"
    """What stands between the parts."""
    encoding: Literal["base64", "hex"] = "base64"
    """How the signature is written."""
    timestamp: Literal["iso8601", "unix"] = "iso8601"
    """How the moment is written: 2027-01-31T12:00:00Z, or seconds."""

    @model_validator(mode="after")
    def _carries_what_it_signs(self) -> Self:
        carried = set(self.headers.values())
        if "signature" not in carried or len(carried) != len(self.headers):
            raise nonsense("headers: one carries the signature, and each another thing")
        if lacking := {"timestamp", "nonce"} & set(self.text) - carried:
            raise nonsense(f"headers: the PMS must be told the {', '.join(sorted(lacking))} that is signed")
        return self


class Auth(Table):
    """How the credential is shown."""

    only_if: Mapping[Text, Scalar] = Field(default_factory=dict)
    """Options and the values that an account has where this form is for it; for each of several forms but the last."""
    form: Literal["bearer", "basic", "header", "query", "oauth", "signed"] = "bearer"
    """Where it goes."""
    name: HeaderName | None = None
    """The header's or the parameter's name, for the forms header and query; for oauth, the header of access tokens, if not
    Authorization."""
    credential: Literal["user:password", "key"] = "user:password"
    """Of which form the credential of `basic` is: a pair, or one key that is encoded alone."""
    oauth: OAuth | None = None
    """For the form oauth."""
    signature: Signature | None = None
    """For the form signed."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.form != "oauth" and (self.name is None) == (self.form in ("header", "query")):
            raise nonsense("`name` is for the forms header and query, which need it, and for oauth")
        if (self.oauth is None) == (self.form == "oauth"):
            raise nonsense("`oauth` is for the form oauth, which needs it")
        if (self.signature is None) == (self.form == "signed"):
            raise nonsense("`signature` is for the form signed, which needs it")
        if self.credential == "key" and self.form != "basic":
            raise nonsense("`credential` is for the form basic")
        return self
