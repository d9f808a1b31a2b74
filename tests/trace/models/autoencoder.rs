//! A variational autoencoder, whose noise is an input.

use onionskin::nn::{
    Conv2d, ConvTranspose2d, Flatten, Linear, ReLU, Sequential, Sigmoid, Unflatten,
};
use onionskin::trace::{Forward, Module, TracedTensor};

use super::{check_network_of_two, network};

#[derive(Module)]
struct Autoencoder {
    encoder: Sequential,
    mu: Linear,
    logvar: Linear,
    decoder: Sequential,
}

impl Autoencoder {
    fn new(latent: usize) -> Autoencoder {
        let shrink = |inputs, outputs| Conv2d::new(inputs, outputs, 4).stride(2).padding(1);
        let grow = |inputs, outputs| {
            ConvTranspose2d::new(inputs, outputs, 4)
                .stride(2)
                .padding(1)
        };
        Autoencoder {
            encoder: Sequential::new()
                .add(shrink(1, 4))
                .add(ReLU::new())
                .add(shrink(4, 8))
                .add(ReLU::new())
                .add(Flatten::new()),
            mu: Linear::new(8 * 4 * 4, latent),
            logvar: Linear::new(8 * 4 * 4, latent),
            decoder: Sequential::new()
                .add(Linear::new(latent, 8 * 4 * 4))
                .add(ReLU::new())
                .add(Unflatten::new(1, [8, 4, 4]))
                .add(grow(8, 4))
                .add(ReLU::new())
                .add(grow(4, 1))
                .add(Sigmoid::new()),
        }
    }
}

/// Draws from a normal distribution, given standard normal noise.
fn reparametrize(mu: &TracedTensor, logvar: &TracedTensor, noise: &TracedTensor) -> TracedTensor {
    mu + noise * (logvar * 0.5).exp()
}

impl Forward<(&TracedTensor, &TracedTensor)> for Autoencoder {
    type Output = [TracedTensor; 3];

    fn forward(&self, (x, noise): (&TracedTensor, &TracedTensor)) -> [TracedTensor; 3] {
        let features = self.encoder.call(x);
        let (mu, logvar) = (self.mu.call(&features), self.logvar.call(&features));
        let image = self.decoder.call(reparametrize(&mu, &logvar, noise));
        [image, mu, logvar]
    }
}

#[test]
fn autoencoder() {
    let traces = check_network_of_two(&network("autoencoder"), &Autoencoder::new(4));
    assert_eq!(traces, 1);
}
