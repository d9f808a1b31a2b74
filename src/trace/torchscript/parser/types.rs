//! Parser of static types.

use super::*;

impl Parser<'_> {
    pub(super) fn ty(&mut self) -> Result<Type> {
        self.nested(Self::unnested_type)
    }

    fn unnested_type(&mut self) -> Result<Type> {
        let name = match *self.peek() {
            TokenKind::Name(name) => name,
            TokenKind::Qualified(name) => {
                self.position += 1;
                return Ok(Type::Class(name.to_owned()));
            }
            _ => return self.expected("a type"),
        };
        self.position += 1;
        if self.eat('[') {
            return self.generic(name);
        }
        Ok(match name {
            "Tensor" => Type::Tensor,
            "int" | "SymInt" => Type::Int,
            "float" | "SymFloat" => Type::Float,
            "bool" | "SymBool" => Type::Bool,
            "str" => Type::Str,
            "number" | "Scalar" => Type::Number,
            "NoneType" | "None" => Type::None,
            "Device" => Type::Device,
            "Any" => Type::Any,
            _ => Type::Other(name.to_owned()),
        })
    }

    fn generic(&mut self, name: &str) -> Result<Type> {
        let offset = self.offset();
        // The empty tuple is `Tuple[()]`.
        if name == "Tuple" && self.eat('(') {
            self.expect(')')?;
            self.expect(']')?;
            return Ok(Type::Tuple(Vec::new()));
        }
        let parts = self.list(']', Self::ty)?;
        let boxed = |ty: &Type| Box::new(ty.clone());
        Ok(match (name, parts.as_slice()) {
            ("Tuple", _) => Type::Tuple(parts),
            ("Union", _) => Type::Union(parts),
            ("Optional", [inner]) => Type::Optional(boxed(inner)),
            ("List", [inner]) => Type::List(boxed(inner)),
            ("Future" | "Await", [inner]) => Type::Future(boxed(inner)),
            ("Dict", [key, value]) => Type::Dict(boxed(key), boxed(value)),
            ("RRef", [inner]) => Type::Other(format!("RRef[{inner}]")),
            _ => {
                let message = format!("{name} does not take {} types", parts.len());
                return self.error_at(offset, message);
            }
        })
    }
}
