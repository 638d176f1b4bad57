"""Personal models: kept from round to round, or tuned after the last round."""

from fedblade.personal._etf_stages import EtfFineTuning
from fedblade.personal._models import FINE_TUNING_REVISION, finetuned, local_model

__all__ = ["FINE_TUNING_REVISION", "EtfFineTuning", "finetuned", "local_model"]
