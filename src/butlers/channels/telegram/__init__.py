"""The Telegram channel: a bot that receives by long polling or webhook, and sends by the Bot API."""
