"""A model's shape and weights: conversion from Hugging Face's folder to MindFormers' and back."""
