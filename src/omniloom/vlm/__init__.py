"""From conversations and pictures to the tokens and pixels that a vision-language model is trained on."""
