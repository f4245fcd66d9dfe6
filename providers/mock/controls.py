"""What can be changed from a page: the faults, the keys, the inbox; each by a plain form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from aiohttp import web

from providers.mock import panel
from providers.mock.faults import Dials, FaultsInvalid
from providers.mock.ledger import Ledger
from providers.mock.shell import Shell
from providers.mock.stream import Hub


class Controls:
    """The handlers of /faults, /delete and /forget."""

    def __init__(self, ledger: Ledger, dials: Dials, hub: Hub, shell: Shell) -> None:
        self._ledger = ledger
        self._dials = dials
        self._hub = hub
        self._shell = shell

    def routes(self) -> list[web.RouteDef]:
        """Where the forms are found."""
        page = self._shell.page
        return [
            web.get("/faults", page(self.faults)),
            web.post("/faults", page(self.set_faults)),
            web.post("/faults/off", page(self.faults_off)),
            web.get("/delete", page(self.ask_delete)),
            web.post("/delete", page(self.delete)),
            web.get("/forget", page(self.ask_forget)),
            web.post("/forget", page(self.forget)),
        ]

    async def faults(self, _request: web.Request) -> web.Response:
        """The knobs, to be read and turned."""
        return await self._faults_form()

    async def set_faults(self, request: web.Request) -> web.Response:
        """Turn the knobs; what cannot be set is said beside its field, and then nothing changes."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        try:
            self._dials.set(_turned(panel.parse(form), self._dials))
        except FaultsInvalid as error:
            return await self._faults_form(form, error)
        self._hub.changed()
        raise web.HTTPSeeOther("/faults")

    async def faults_off(self, request: web.Request) -> web.Response:
        """Everything back to how the process was started; leads back to where the button was."""
        self._dials.reset()
        self._hub.changed()
        raise web.HTTPSeeOther(_came_from(request))

    async def ask_delete(self, _request: web.Request) -> web.Response:
        """For whoever has no script: the question the dialog asks."""
        return await self._shell.render("confirm.html", what="delete")

    async def delete(self, _request: web.Request) -> web.Response:
        """Empty the inbox; keys and calls stay."""
        await self._ledger.empty_inbox()
        self._hub.changed()
        raise web.HTTPSeeOther("/")

    async def ask_forget(self, _request: web.Request) -> web.Response:
        """For whoever has no script: the question the dialog asks."""
        return await self._shell.render("confirm.html", what="forget")

    async def forget(self, _request: web.Request) -> web.Response:
        """Forget every key; the mails stay."""
        await self._ledger.forget_keys()
        self._hub.changed()
        raise web.HTTPSeeOther("/faults")

    async def _faults_form(
        self, typed: Mapping[str, str] | None = None, invalid: FaultsInvalid | None = None
    ) -> web.Response:
        fields = panel.inputs(self._dials.faults, self._dials.changed(), typed, invalid)
        at_field = {field.name for field in fields if field.error}
        elsewhere = [] if invalid is None else [m for name, m in invalid.by_field().items() if name not in at_field]
        return await self._shell.render("faults.html", fields=fields, elsewhere=elsewhere, invalid=invalid)


def _turned(values: Mapping[str, object], dials: Dials) -> dict[str, object]:
    """Only what differs from how the knobs stand: naming a seed, for one, starts the dice anew."""
    now = json.loads(dials.faults.model_dump_json())
    return {name: value for name, value in values.items() if value != now[name]}


def _came_from(request: web.Request) -> str:
    """The page of ours that a form was on."""
    parts = urlsplit(request.headers.get("Referer", ""))
    ours = parts.netloc == request.host and parts.path.startswith("/") and not parts.path.startswith("//")
    return parts._replace(scheme="", netloc="", fragment="").geturl() if ours else "/faults"
