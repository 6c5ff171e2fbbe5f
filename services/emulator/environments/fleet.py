"""The environments of an emulator: of one of two kinds, in which all are of the same."""

from services.emulator.environments.connected import ConnectedEnvironments
from services.emulator.environments.processes import ProcessEnvironments

Fleet = ProcessEnvironments | ConnectedEnvironments
