"""The page's address, with the token in the fragment, which no server or log sees."""

from urllib.parse import quote

from nitro.hints import Place


def page_link(api_url: str, token: str, *, job_id: str | None = None) -> str:
    """Return the address that signs a browser in; the page hides the token at once."""
    to = "" if job_id is None else f"&to=/jobs/{quote(job_id)}"
    return f"{api_url.rstrip('/')}/#token={quote(token, safe='')}{to}"


def shown_link(
    api_url: str, token: str, *, private: bool, place: Place, job_id: str | None = None
) -> str:
    """Return the text to print for an API's page.

    Args:
        api_url: The API's address.
        token: Its token, valid until the API changes it.
        private: Whether only the user reads the text, as on a terminal; logs get no token.
        place: Where `nitro dashboard` finds the API.
        job_id: The job to show first.
    """
    if private:
        return page_link(api_url, token, job_id=job_id)
    opens = place.command("dashboard", *([] if job_id is None else [job_id]))
    return f"{api_url.rstrip('/')}/  (open it with: {opens})"
