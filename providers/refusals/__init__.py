"""What providers say instead of an answer: what it means, what it teaches, and what may be kept of its words.

Where new words of a vendor go, by what these say:

- a field, value or mark is not taken: a line of ``rules.py``, of which ``named_fields.py`` makes fields; in words of no
  rule: ``other_words.py``; the request is sent in another form
- so are refusals that name no field: of turns, roles, ids and blocks (``turns.py``), thinking and efforts
  (``thinking.py``), forced calls, names of tools and schemas (``tools.py``), betas (``betas.py``), streams and the
  usage in them (``streaming.py``), the limit of the answer (``answer_limits.py``); ``reading.py`` reads all of these
- a status of the server, or an answer that has begun, hides that the request is refused: ``blame.py``
- the prompt is too long: ``too_long.py``; deployments with a longer context are asked
- too many tools, pictures or bytes: ``vendor_limits.py``; all other deployments are asked
- a filter refuses the text: ``content.py``; one other provider is asked
- the tier, or the choice of vendors, is not served: ``one_request.py``; all other deployments are asked
- the API lacks the model, or a type of tool: ``wrong_api.py``; another API of the provider is asked
- there is no such model: ``unknown_models.py``; the deployment is out until its operator acts
- the account is spent, the key is refused: ``accounts.py``; another key, else another deployment is asked
- a limit of the minute or the day, its headers: ``rate_limits.py``; the deployment rests for as long
- what a client is told of all these: ``meanings.py``
- JSON of another error in a message: ``enclosed.py``; a validator's list: ``complaints.py``, and ``zod_issues.py``

``error_shapes.py`` finds code, type and message in a body; ``error_kinds.py`` decides by these and the status;
``one_request.py`` then decides by the request (``decide_by_request``), once. ``error_bodies.py`` makes the error.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
