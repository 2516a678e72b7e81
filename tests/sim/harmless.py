HARMLESS: dict[str,str] = {}
