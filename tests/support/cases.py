"""Many small cases of one function as one test: each test costs several milliseconds in every process of a run."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

_Test = TypeVar("_Test", bound=Callable[..., Any])
_PARAM = type(pytest.param())


def for_each(names: str | Sequence[str], cases: Iterable[Any], *, ids: object = None) -> Callable[[_Test], _Test]:
    """As `pytest.mark.parametrize`, but in one test, which goes through all cases, whatever fails, and names those that failed.

    Fixtures are the same for all cases: for functions that leave nothing behind for the next one. `ids` say nothing here.
    """
    each_name = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    each_case = [_by_name(each_name, case) for case in cases]

    def decorate(test: _Test) -> _Test:
        async def run_async(**fixtures: Any) -> None:
            with _failures() as failures:
                for case in each_case:
                    with _kept(failures, case):
                        await test(**fixtures, **case)

        def run(**fixtures: Any) -> None:
            with _failures() as failures:
                for case in each_case:
                    with _kept(failures, case):
                        test(**fixtures, **case)

        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in each_name]
        decorated: Any = functools.wraps(test)(run_async if inspect.iscoroutinefunction(test) else run)
        decorated.__signature__ = signature.replace(parameters=fixtures)  # by which pytest knows what it asks for
        return decorated  # type: ignore[no-any-return]

    return decorate


def _by_name(names: Sequence[str], case: Any) -> Mapping[str, Any]:
    values = case.values if isinstance(case, _PARAM) else (case,) if len(names) == 1 else case
    return dict(zip(names, values, strict=True))


@contextmanager
def _kept(failures: list[BaseException], case: Mapping[str, Any]) -> Iterator[None]:
    try:
        yield
    except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001  # whatever it is, the other cases are gone through
        failure.add_note("case: " + ", ".join(f"{name}={value!r}" for name, value in case.items()))
        failures.append(failure)


@contextmanager
def _failures() -> Iterator[list[BaseException]]:
    failures: list[BaseException] = []
    yield failures
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise BaseExceptionGroup("several cases failed", failures)
