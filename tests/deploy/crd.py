"""Checks a value against the schema of a custom resource, as strictly as `kubectl --validate=strict`: what the schema
does not name is an error."""

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def problems(value, schema: dict, path: str = "") -> list:
    """One line per place that does not fit."""
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, (int, str)) and not isinstance(value, bool)
        return [] if fits else [f"{path}: {value!r} should be a number or a string"]
    expected = schema.get("type")
    if expected is None:
        raise ValueError(f"{path}: the schema has no type here, and this checker knows no other rule")
    if not isinstance(value, TYPES[expected]) or (expected in ("integer", "number") and isinstance(value, bool)):
        return [f"{path}: {value!r} should be of type {expected}"]
    if expected == "object":
        return object_problems(value, schema, path)
    if expected == "array":
        return [line for i, item in enumerate(value) for line in problems(item, schema["items"], f"{path}[{i}]")]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{path}: {value!r} should be one of {schema['enum']}"]
    if "minimum" in schema and value < schema["minimum"]:
        return [f"{path}: {value!r} should be at least {schema['minimum']}"]
    return []


def object_problems(value: dict, schema: dict, path: str) -> list:
    found = [f"{path}: {name} is missing" for name in schema.get("required", ()) if name not in value]
    known = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name, item in value.items():
        if name in known:
            found += problems(item, known[name], f"{path}.{name}")
        elif isinstance(others, dict):
            found += problems(item, others, f"{path}.{name}")
        elif "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            found.append(f"{path}: there is no field {name}")
    return found
