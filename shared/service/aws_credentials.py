"""AWS credentials of the process, from a role, the environment or a profile; renewed in time.

Separate from `shared.cache.authentication` because it needs the SDK, which actors do not have.
"""

from collections.abc import Callable

import botocore.session
from botocore.exceptions import BotoCoreError

from shared.cache.authentication import CredentialsError
from shared.cache.connect_token import AwsCredentials


def process_credentials() -> Callable[[], AwsCredentials]:
    """Return a function that returns the current credentials; it raises `CredentialsError`."""
    session = botocore.session.get_session()

    def current() -> AwsCredentials:
        try:
            found = session.get_credentials()
            key = None if found is None else found.get_frozen_credentials()
        except BotoCoreError as error:
            raise CredentialsError(f"AWS credentials cannot be read: {error}") from error
        if key is None or key.access_key is None or key.secret_key is None:
            raise CredentialsError(
                "NITRO_CACHE_AUTH is iam, but there are no AWS credentials: give the process a "
                "role, or set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        return AwsCredentials(
            access_key=key.access_key, secret_key=key.secret_key, session_token=key.token
        )

    return current
