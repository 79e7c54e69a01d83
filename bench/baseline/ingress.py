"""HTTP to topic, as FastAPI's tutorial has it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from uuid import uuid4

from aiokafka import AIOKafkaProducer
from fastapi import FastAPI, Request
from pydantic import BaseModel

from bench.baseline.settings import Settings


class Address(BaseModel):
    """As the specification's 2.1."""

    line1: str
    line2: str
    postalCode: str  # noqa: N815
    city: str
    state: str
    country: str


class Guest(BaseModel):
    """As the specification's 2.1."""

    name: str
    firstName: str  # noqa: N815
    lastName: str  # noqa: N815
    email: str
    phone: str | int | None = None
    address: Address


class Reservation(BaseModel):
    """As the specification's 2.1."""

    model_config = {"extra": "allow"}

    morChannel: str  # noqa: N815
    propertyId: str | int  # noqa: N815
    roomId: str | int  # noqa: N815
    arrivalDate: date  # noqa: N815
    departureDate: date  # noqa: N815
    guest: Guest
    numberOfGuests: int  # noqa: N815
    totalPrice: float  # noqa: N815
    currency: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One producer for the whole process."""
    app.state.settings = Settings.given()
    async with AIOKafkaProducer(
        bootstrap_servers=app.state.settings.kafka, acks="all", enable_idempotence=True
    ) as app.state.producer:
        yield


def application() -> FastAPI:
    """For `uvicorn --factory`."""
    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def ready() -> str:
        return "ok"

    @app.post("/api/v1/vrs/reservations/booking-engine", status_code=202)
    async def create(reservation: Reservation, request: Request) -> dict[str, dict[str, str]]:
        request_id = str(uuid4())
        accepted_at = datetime.now(UTC).isoformat()
        message = {
            "requestId": request_id,
            "acceptedAt": accepted_at,
            "reservation": reservation.model_dump(mode="json"),
        }
        await request.app.state.producer.send_and_wait(
            request.app.state.settings.requests, json.dumps(message).encode(), key=str(reservation.propertyId).encode()
        )
        return {"data": {"requestId": request_id, "status": "PENDING", "acceptedAt": accepted_at}}

    return app
