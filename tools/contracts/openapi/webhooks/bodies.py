"""The shapes of the answers about webhooks, and of what is posted to one."""

from typing import Annotated, Literal

from pydantic import Field

from forwarder.reservation.record import RESULT_TYPES
from forwarder.store.deliveries import DeliveryStatus
from forwarder.tenancy.port import Disabled
from tools.contracts.messages.event_data import ResultData
from tools.contracts.openapi.response_bodies import Meta
from tools.contracts.record import Moment, Part

_Type = Annotated[str, Field(json_schema_extra={"enum": list(RESULT_TYPES)})]
_Secret = Annotated[
    str,
    Field(
        description="What deliveries are signed with: `whsec_` and base64. Shown this once.",
        pattern="^whsec_[A-Za-z0-9+/]+=*$",
    ),
]
_Id = Annotated[str, Field(pattern="^whk_[A-Za-z0-9_-]+$")]
_DeliveryId = Annotated[int, Field(ge=1)]


class Webhook(Part):
    """An address to which the results of the workspace are posted."""

    id: _Id
    url: str
    types: Annotated[list[_Type] | None, Field(description="The types of events that it takes; null for all.")]
    description: str
    enabled: bool
    disabled_reason: Annotated[
        Disabled | None,
        Field(
            description="`gone`: it answered 410; `failing`: nothing reached it for days; `by_hand`: somebody wanted it."
        ),
    ]
    disabled_at: Moment | None
    created_at: Moment
    previous_secret_until: Annotated[
        Moment | None, Field(description="Until then deliveries are also signed with an earlier secret.")
    ]


class WebhookWithSecret(Webhook):
    """A webhook, and the secret that was just made for it."""

    secret: _Secret


class WebhookAttempt(Part):
    """One try. Either it was answered, with `status`, or `failure` says why not."""

    started_at: Moment
    duration_ms: Annotated[int, Field(ge=0)]
    status: Annotated[int | None, Field(description="The HTTP status of the answer.")]
    failure: Annotated[str | None, Field(description="Why there was no answer, for programs.")]
    detail: Annotated[str | None, Field(description="What was said, shortened.")]


class WebhookDelivery(Part):
    """One event for one webhook."""

    id: _DeliveryId
    event_id: Annotated[str, Field(description="The `webhook-id` header, the same in every try.")]
    type: str
    status: Annotated[
        DeliveryStatus,
        Field(description="`STOPPED`: the webhook was disabled while it waited. What ended can be sent again."),
    ]
    created_at: Moment
    due_at: Annotated[Moment | None, Field(description="When it is tried next; null once it ended.")]
    ended_at: Moment | None
    tries: Annotated[int, Field(ge=0)]
    attempts: Annotated[list[WebhookAttempt], Field(description="The last ones, oldest first.")]


class TestQueued(Part):
    """The delivery that tests a webhook."""

    delivery_id: _DeliveryId


class WebhookRemoved(Part):
    """It was removed."""

    id: _Id
    removed: Literal[True]


class WebhookEnvelope(Part):
    """A webhook."""

    data: Webhook


class WebhookWithSecretEnvelope(Part):
    """A webhook with its new secret."""

    data: WebhookWithSecret


class WebhookPage(Part):
    """Webhooks in the order in which they were added."""

    data: list[Webhook]
    meta: Meta


class WebhookRemovedEnvelope(Part):
    """A webhook that is no more."""

    data: WebhookRemoved


class TestQueuedEnvelope(Part):
    """A test is on its way."""

    data: TestQueued


class WebhookDeliveryEnvelope(Part):
    """A delivery."""

    data: WebhookDelivery


class WebhookDeliveryPage(Part):
    """Deliveries, the newest first."""

    data: list[WebhookDelivery]
    meta: Meta


class ResultDelivered(Part):
    """What is posted to a webhook: a result event, as on the results topic."""

    type: _Type
    timestamp: Annotated[Moment, Field(description="When it happened.")]
    data: ResultData


class TestData(Part):
    """Whose webhook is tested."""

    endpoint_id: _Id
    workspace_id: str


class TestDelivered(Part):
    """What is posted to a webhook that is tested."""

    type: Literal["webhook.test.v1"]
    timestamp: Moment
    data: TestData
