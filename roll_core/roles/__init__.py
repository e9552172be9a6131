"""Roles whose processes serve requests and may be lost without harm: verifier hosts today.

`RoleGroup` is the general part: requests go to the least loaded host, those of a lost host go to another one, and the
host is replaced. `HostedVerifierPool` is the verifiers' role.
"""

from __future__ import annotations

from roll_core.roles.errand import Answer, Place
from roll_core.roles.group import RoleGroup, RoleLimits
from roll_core.roles.host import Handler, host_spec
from roll_core.roles.roster import Room
from roll_core.roles.verifiers import HostedVerifierPool

__all__ = ["Answer", "Handler", "HostedVerifierPool", "Place", "RoleGroup", "RoleLimits", "Room", "host_spec"]
