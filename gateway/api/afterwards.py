"""What is kept of a call once its answer comes: the parts that later requests may name. The handler itself answers."""

import msgspec

from gateway.api.call_context import ClientContext
from gateway.api.call_runner import CallRunner
from gateway.api.context import Context
from gateway.api.provider_state import ReturnedNames
from gateway.api.request import ParsedRequest
from gateway.api.stored import begin_in_background
from gateway.core.calls import Call, CallRecord, Maker
from gateway.racing import Winner, forget_prompt
from providers.dialects import StoredKind


class Afterwards(msgspec.Struct, frozen=True):
    """Keeps those parts of the answer to one request that later requests may name; forgets the prompt."""

    context: Context
    parsed: ParsedRequest
    client_context: ClientContext
    runner: CallRunner
    given: ReturnedNames | None  # gathers what the answer names; None: nothing that its provider stores

    @property
    def keeps(self) -> bool:
        """Whether anything is kept."""
        return self.given is not None or self.parsed.remembering is not None or self.parsed.runs_on

    async def heard(self, body: bytes, winner: Winner, record: CallRecord) -> None:
        """Keep the names in a whole answer, and what a later request needs to continue the answer."""
        maker = Maker(winner.deployment, winner.key_name)
        if self.given is not None:
            self.given.add(body)
            await self.keep(body, maker)
        if self.parsed.remembering is not None:
            await self.parsed.remembering.read(body)
            self.remember(maker)
        if self.parsed.runs_on:
            await self.begun(body, record)

    async def begun(self, beginning: bytes, record: CallRecord | None) -> None:
        """Note what limits counted for the call of a response in the background; ``beginning``: of its answer."""
        await begin_in_background(self.context, self.runner.call, record, beginning)

    def forget(self, call: Call) -> None:
        """Release the prompt of the request and of each translated copy."""
        n_kept = forget_prompt(self.parsed.fields, self.parsed.dialect)
        for each in (call,) if call is self.runner.first_call else (call, self.runner.first_call):
            if each.request.fields is not self.parsed.fields:
                n_kept += forget_prompt(each.request.fields, each.request.dialect)
            for rendered in each.rendered.values():
                n_kept += 0 if rendered.fields is None else forget_prompt(rendered.fields)
                n_kept += 0 if rendered.apart is None else forget_prompt(rendered.apart.fields)
        if self.parsed.remembering is not None:
            n_kept += self.parsed.remembering.size
        if self.client_context.received is not None:
            self.client_context.received.shrink(n_kept)

    def remember(self, maker: Maker) -> None:
        """Keep the answer for later requests that name it, unless ``maker`` stores the answer as well.

        A provider may answer to ``store: true`` and keep nothing, as vLLM does.
        """
        parsed, remembering = self.parsed, self.parsed.remembering
        if remembering is None:
            return
        if parsed.stores:
            deployment = self.runner.models.planned.model.deployments[maker.deployment]
            if deployment.stores and deployment.spoken_in(self.runner.call) is parsed.dialect:
                return
        remembering.keep_soon()

    async def keep(self, answer: bytes, maker: Maker) -> None:
        """Record the maker of the response in ``answer``, and the names in the response.

        Names in a translated answer are not stored, but for those of messages: a client may compare its next request
        with a message of any kind.
        """
        deployment, key_name = maker.deployment, maker.key_name
        responses, client = self.context.responses, self.client_context.client.name
        names = {} if self.given is None else self.given.names
        deployment_asked = self.runner.models.planned.model.deployments[deployment]
        if self.parsed.relayed is not None:
            pass  # all names are the provider's own
        elif deployment_asked.spoken_in(self.runner.call) is not self.parsed.dialect:
            names = {name: kind for name, kind in names.items() if kind is StoredKind.MESSAGE}
        elif self.parsed.stores:
            name = None if (recalling := self.parsed.dialect.recalling) is None else recalling.id_of(answer)
            names = names if name is None else {name: StoredKind.RESPONSE, **names}
        else:  # the answer's id names nothing at the provider, and seals what the gateway keeps of the answer in Redis
            names = {name: kind for name, kind in names.items() if kind is not StoredKind.RESPONSE}
        await responses.keep_all(client, names, deployment, key_name, deployment_asked.tenant)
