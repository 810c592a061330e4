import torch, gpytorch
def test_a():
    from degp.priors import NNGP, ExactGP, erf
    x=torch.linspace(-1.5,1.5,8)[:,None].double()
    y=torch.tensor([-0.3020, -0.7766, -0.9647, -0.2867, 0.3554, 1.0375, 0.8193, -1.1549]).double()[:,None]
    for d in (1,2,3):
        gp=ExactGP.fit(NNGP(d,2.0,[1.0]*d+[0.0]),x,y,noise_variance=0.04)
        p=torch.tensor([-3.,-2,0,2,3]).double()[:,None]
        print(gp.log_marginal_likelihood(), gp.mean(p).T, gp.variance(p).sqrt())
def test_b():
    from degp.priors import ExactGP
    x=torch.randn(5,2); ExactGP.fit(gpytorch.kernels.RBFKernel(),x,x,noise_variance=0.1)
def test_c():
    from degp import *
    from torch import nn
    from degp.priors import WeightPrior
    ens=Ensemble(lambda: nn.Linear(4,1),3,backbone=nn.Flatten())
    objectives.rms(Gaussian(),ens)
def test_d():
    from degp import LowRankGaussian
    torch.manual_seed(0)
    q=LowRankGaussian(torch.randn(4,2),torch.randn(3,4,2),0.1)
    a=q.covariances(); b=q.covariance(); torch.manual_seed(1); s=q.sample(5)
    with torch.autocast("cpu",torch.bfloat16):
        torch.manual_seed(1)
        print((q.covariances()-a).abs().max(),(q.covariance()-b).abs().max(),(q.sample(5)-s).abs().max())
    torch.set_float32_matmul_precision("medium")
    torch.manual_seed(1)
    print((q.covariances()-a).abs().max(),(q.covariance()-b).abs().max(),(q.sample(5)-s).abs().max())
    torch.set_float32_matmul_precision("highest")
