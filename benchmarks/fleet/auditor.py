"""The gateway's command line, with one thing different: every launch of every plan is audited.

The policy audits what it explores, a share of the calls. To see how far the published figures are from the truth when
nothing is censored, this process watches every loser to its first token.
"""

from typing import Any

from msgspec.structs import replace

from gateway.cli.main import main
from gateway.steering import Plan, Steering


def audit_everything() -> None:
    """Have all launches audited from now on, in this process."""
    planned = Steering.plan

    def plan(self: Steering, *arguments: Any, **named: Any) -> Plan:
        chosen = planned(self, *arguments, **named)
        return replace(chosen, launches=tuple(replace(launch, audited=True) for launch in chosen.launches))

    Steering.plan = plan  # type: ignore[method-assign] # the one thing that is different


if __name__ == "__main__":
    audit_everything()
    main()
