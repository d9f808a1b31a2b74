pub fn forward(x: &TracedTensor) -> Result<TracedTensor> {
    let dropout = x.dropout_with(0.25, true, kw!(seed = 11, counter = 0));
    let randn_like = x.randn_like_with(kw!(seed = 11, counter = 1));
    let add = dropout.add(&randn_like);
    Ok(add)
}
