"""The page's address, with the token where no server and no log ever sees it: in the fragment."""

from urllib.parse import quote

from nitro.hints import Place


def page_link(api_url: str, token: str, *, job_id: str | None = None) -> str:
    """Return the address that signs a browser in; the page takes the token out of sight at once."""
    to = "" if job_id is None else f"&to=/jobs/{quote(job_id)}"
    return f"{api_url.rstrip('/')}/#token={quote(token, safe='')}{to}"


def shown_link(
    api_url: str, token: str, *, private: bool, place: Place, job_id: str | None = None
) -> str:
    """Return what to print of an API's page.

    Args:
        api_url: Where the API is.
        token: What opens it, for as long as the API does not change it.
        private: Whether only its user reads what is printed, as on a terminal; logs get no token.
        place: Where `nitro dashboard` finds the API.
        job_id: The job to show first.
    """
    if private:
        return page_link(api_url, token, job_id=job_id)
    opens = place.command("dashboard", *([] if job_id is None else [job_id]))
    return f"{api_url.rstrip('/')}/  (open it with: {opens})"
