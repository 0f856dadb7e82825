"""The settings of CRM sync; `msgplatform.settings` takes over every name in capitals."""

from __future__ import annotations

from msgplatform import env

# Leads that come without an API key: from one address, and for one landing page. Many people share
# the address of a mobile network.
CRM_RATE_ADDRESS = env.text("CRM_RATE_ADDRESS", "60/min")
CRM_RATE_APPKEY = env.text("CRM_RATE_APPKEY", "1200/min")
