"""The environments of an emulator: all its own processes, or all connected containers."""

from services.emulator.environments.connected import ConnectedEnvironments
from services.emulator.environments.processes import ProcessEnvironments

Fleet = ProcessEnvironments | ConnectedEnvironments
